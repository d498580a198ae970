"""The users' functions: models set up once, services called."""
