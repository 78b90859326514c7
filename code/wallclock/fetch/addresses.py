"""Which addresses are public: what others write may reach no others."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

#: What no request may reach: the blocks that IANA's special-purpose address registries (RFC 6890,
#: RFC 8190; entries up to RFC 9780) do not call globally reachable. Of 192.0.0.0/24 and 2001::/23
#: also the globally reachable entries are refused: anycast, whose nearest server may be in one's
#: own network, and identifiers that are no hosts. `ipaddress` is not asked: what it calls global
#: differs between releases of Python.
_SPECIAL_IPV4 = (
    "0.0.0.0/8",  # this network: RFC 791
    "10.0.0.0/8",  # private: RFC 1918
    "100.64.0.0/10",  # shared, behind a carrier's NAT: RFC 6598
    "127.0.0.0/8",  # loopback: RFC 1122
    "169.254.0.0/16",  # link-local, and clouds' metadata: RFC 3927
    "172.16.0.0/12",  # private: RFC 1918
    "192.0.0.0/24",  # protocol assignments: RFC 6890
    "192.0.2.0/24",  # documentation: RFC 5737
    "192.88.99.0/24",  # 6to4 relays, deprecated: RFC 7526
    "192.168.0.0/16",  # private: RFC 1918
    "198.18.0.0/15",  # benchmarks: RFC 2544
    "198.51.100.0/24",  # documentation: RFC 5737
    "203.0.113.0/24",  # documentation: RFC 5737
    "224.0.0.0/4",  # multicast, which has a registry of its own: RFC 5771
    "240.0.0.0/4",  # reserved, and limited broadcast: RFC 1112, RFC 8190
    "168.63.129.16/32",  # in no registry: the host agent of Azure's virtual machines
)
#: Of 2000::/3; outside of it no unicast address is global (RFC 4291).
_SPECIAL_IPV6 = (
    "2001::/23",  # protocol assignments, Teredo among them: RFC 2928
    "2001:db8::/32",  # documentation: RFC 3849
    "3fff::/20",  # documentation: RFC 9637
)
_NOT_PUBLIC = [ip_network(block) for block in (*_SPECIAL_IPV4, *_SPECIAL_IPV6)]
_UNICAST, _NAT64 = ip_network("2000::/3"), ip_network("64:ff9b::/96")


@lru_cache(4096)
def is_public(address: str) -> bool:
    """Whether an IPv4 or IPv6 address is globally reachable unicast, and so is one that it embeds.

    IPv4 is embedded by IPv4-mapped addresses, 6to4 (RFC 3056) and NAT64 (RFC 6052).
    """
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is None and ip not in _UNICAST:
            return False
        ip = inner or ip
    return not any(ip in block for block in _NOT_PUBLIC)
