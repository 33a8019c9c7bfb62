"""The package's own members of each kind, over which the conformance suites iterate."""

from neuralcde.contracts import Recipe


def members(registry):
    """Name -> member, without the toy members that other tests register."""
    return {name: registry[name] for name in registry if home(registry[name]).startswith("neuralcde.")}


def home(member):
    """The module that defines a member."""
    return (member if isinstance(member, type) else type(member)).__module__


def takes(member, option):
    """Whether the constructor of a class takes this option."""
    try:
        Recipe(member, **{option: None})
    except TypeError:
        return False
    return True


def cases(registry, options):
    """Case -> recipe of a member: each under its own name with its defaults, or as the table `options` has it.

    The table is name -> case -> options.
    """
    found = {}
    for name, member in members(registry).items():
        for case, chosen in options.get(name, {name: {}}).items():
            found[case] = Recipe(member, **chosen)
    unknown = [name for name in options if name not in registry]
    assert not unknown, f"the table has options for {unknown}, which are not registered"
    return found


def build(recipe, *sizes, **defaults):
    """A member, or an error that says where its options belong."""
    try:
        return recipe.build(*sizes, **defaults)
    except TypeError as error:
        raise AssertionError(
            f"{recipe!r} cannot be made: {error}. Every registered member is tested; one that cannot be made with its "
            "defaults needs an entry in the table of options of this suite."
        ) from error
