"""The page: datasets, experiments and policies in a browser, for whoever does not write code. Everything that it does is the API's.

site        the application: rooms put together, pages rendered
guard       who may ask, from where, and what every answer says
serving     the server, with time limits of its own
records     what only the page knows, in one SQLite file
uploads     files in chunks, which go on after a break
datasets    pages of datasets
experiments pages of experiments, and their live curves
policies    pages of policies
forms       a form from a JSON Schema
"""
