"""`python -m simulation PATH [SEED]`: makes a simulated world, unless there is one."""

import sys
from pathlib import Path

from simulation.world import World


def main(path: str, seed: str = "0") -> None:
    if Path(path).exists():
        print(f"{path}: there is a world already")
        return
    World.create(path, seed=int(seed)).close()
    print(f"{path}: made, seed {seed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
