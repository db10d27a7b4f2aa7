"""Fit a matrix of outcomes by girth: ``python rival_girth.py data.npy answer.npz``."""

import sys

import girth
import numpy as np


def main() -> None:
    """Read, fit, write."""
    data = np.load(sys.argv[1]).T.astype(int)
    found = girth.twopl_mml(data)
    slope, difficulty = np.asarray(found["Discrimination"]), np.asarray(found["Difficulty"])
    ability = girth.ability_eap(data, difficulty, slope)
    np.savez(sys.argv[2], ability=ability, discrimination=slope, easiness=-slope * difficulty)


if __name__ == "__main__":
    main()
