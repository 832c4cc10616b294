"""`python -m peagle_bench` is `peagle-bench`."""

from peagle_bench.cli import main

if __name__ == "__main__":
    main()
