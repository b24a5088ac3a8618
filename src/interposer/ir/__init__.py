"""The intermediate representation: graphs, networks, views of parts of a graph, the text form and the invariants."""
