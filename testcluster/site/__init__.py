"""A whole site on the test cluster: a real hub, its proxy, the lease service and the node agent,
under the shipped accounts and admission policies.  These four are processes inside the cluster's
network, so that a test can kill each; notebook servers and lease pods are pods.  The agent reads
the real kubelet and an NVML stand-in.
"""
