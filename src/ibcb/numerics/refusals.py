"""The error of what was given in a form that it cannot have."""


class WrongTypeError(TypeError):
    """Something that was given is of a type that it cannot be; a plain TypeError is a mistake of our own code."""
