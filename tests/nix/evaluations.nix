# Many configurations in one evaluation: evaluate.nix for each, whose arguments `cases` holds as a list in JSON. Most of
# the time of one alone is that of starting Nix.
{ cases }: map (import ./evaluate.nix) (builtins.fromJSON cases)
