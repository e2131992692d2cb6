"""Names of what is not finished: a backup while it is made, the directory in which a restore puts things together."""

import re

MARK = ".restore-unfinished"
UNFINISHED = re.compile(r"\..+\.unfinished")
