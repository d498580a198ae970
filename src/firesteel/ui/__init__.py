"""Jobs and streams in a browser and over REST, while they run and from their journals. Begin with ``views.structs``.

``views`` make plain data for the eye of the folds of ``report``. ``catalog``: jobs by id. ``server``: the ASGI application beside the job, its
security, its live updates. ``pages``: HTML made of the views, ``drawing``: their pictures. ``process``: the page of a process that runs jobs. Needs the extra ``ui``, which nothing else imports.
"""
