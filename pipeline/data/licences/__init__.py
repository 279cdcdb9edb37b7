"""The default task's data: which licence does this notice state?"""
