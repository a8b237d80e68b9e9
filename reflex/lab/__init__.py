"""The lab: looking inside a model, changing it, and measuring what that does. Never imported on the cold path"""
