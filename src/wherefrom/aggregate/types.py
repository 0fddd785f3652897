"""The array types of this room."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Maps = NDArray[np.floating[Any]]  # [L, n, n]: row i is built, column j contributes
