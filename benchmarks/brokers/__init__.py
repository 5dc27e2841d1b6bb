"""What brokers cost, beside the embedded log and beside NATS JetStream, in the same run.

``rates`` asks how many records a second one broker takes and gives, ``answers`` what an
acknowledgement takes, ``requests`` what the object store is asked (and ``costs`` what a cloud
charges for that), ``eras`` how long producers wait when brokers come, go and die, and
``catalogs`` what many partitions and eras cost. ``run`` does all of them.
"""
