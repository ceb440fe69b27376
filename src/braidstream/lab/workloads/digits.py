"""Real vectors: scanned digits as histograms of 64 cells, in the place of SHC's COREL images (4.2).

scikit-learn ships 1,797 images of 8 x 8 cells with intensities from 0 to 16. Each is divided by its sum, so that it is
a histogram of where the ink is, as a color histogram says where in the spectrum the light is. Euclidean distances
between them run from 0.02 to 0.28.

Cost: 0.1 s, and scikit-learn (the `papers` extra).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braidstream.errors import InputError

__all__ = ["DIMENSIONS", "digit_histograms"]

DIMENSIONS = 64


def digit_histograms() -> npt.NDArray[np.float64]:
    """The histograms, a row each."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415  (an extra)
    except ImportError:
        raise InputError("the digits need scikit-learn", "", "pip install 'braidstream[papers]'") from None
    images = np.asarray(load_digits().data, dtype=np.float64)
    return np.asarray(images / images.sum(axis=1, keepdims=True))
