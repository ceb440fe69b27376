"""The file that `spark-submit` is given to run the `braid` command: `spark-submit "$(braid entry)" run job.toml`.

It lies in a folder of its own because Spark puts that folder in front of Python's path.
"""

from braidstream.cli import main

if __name__ == "__main__":
    main()
