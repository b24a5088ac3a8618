"""The foundation of all other packages: types, shapes, operator schemas, errors, settings, files and the cache."""
