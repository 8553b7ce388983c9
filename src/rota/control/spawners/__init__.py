"""Spawners: the items of a source, a webhook or the listing of an API, and the Task of each item.

- *One Task an item*, however often it is delivered or listed, by whichever process, and also after its Task was pruned.
- *Every delivery is answered*, and only after its effect is durable: a Task, or the reason why there is none.
- *Items are data.* Content of an item is filled into a template as a value, and never evaluated again.
- *Limits hold.* No more Tasks are created than `maxConcurrency` and `maxTotal` allow, whatever arrives at once.

Never: dials an API that is not on the server's list, shows a Secret.
"""
