"""The intermediate representation: graphs, networks, views of parts, their text form and their invariants."""
