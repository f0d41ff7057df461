"""A wheel brings what the package reads of the repository; an editable install finds it there."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("params", "notebooks", "figures")  # as helpers/paths.py finds them
LEFT_OUT = shutil.ignore_patterns("*.svg", "conftest.py", "__pycache__", ".*")


class WithRepository(build_py):
    """Builds the package with these folders in ``helpers/shipped``."""

    def run(self) -> None:
        """Build the modules, then copy the folders next to them."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "helpers", "shipped")
            shutil.rmtree(target, ignore_errors=True)
            for name in SHIPPED:
                shutil.copytree(name, target / name, ignore=LEFT_OUT)


setup(cmdclass={"build_py": WithRepository})
