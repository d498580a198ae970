"""Jobs and streams in a browser and over REST, while they run and from their journals. Begin with ``views.structs``.

``views`` turn the folds of ``report`` into the data that is shown. ``catalog`` finds jobs by id. ``server`` is the ASGI application in the
job's process, with its security and its live updates. ``pages`` make HTML of the views, and ``drawing`` their pictures. ``process`` holds
the page of a process that runs jobs. All of this needs the extra ``ui``.
"""
