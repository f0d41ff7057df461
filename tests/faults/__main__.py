"""The whole fault suite: ``python -m tests.faults``."""

import os
import sys
from pathlib import Path

import pytest

os.environ["HELPERS_FAULTS"] = "all"
sys.exit(pytest.main([str(Path(__file__).parent), *sys.argv[1:]]))
