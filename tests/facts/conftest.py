"""A model as users have theirs, for the tests of facts."""

from __future__ import annotations

import pytest

CHAT = "{% for m in messages %}Q {{ m['content'] }}\nA\n{% endfor %}"


@pytest.fixture
def checkpoint(tiny, tmp_path):
    """A tiny model in a folder, with a chat template."""
    model = tiny("llama")
    folder = tmp_path / "my-model"
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(CHAT)
    return folder
