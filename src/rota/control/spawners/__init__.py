"""What becomes of a TaskSpawner: from a webhook or a listing to items, and from each item to one Task.

Promises: an item has one Task, however often it is delivered, listed or looked at, and by whichever process; whoever
delivers is told what came of it; what an item says is data wherever it is put, and never looked at again.

Never: drops what it was given without a word, dials what is not on the server's list, shows a Secret.
"""
