/** Texts as printed by a kernel. */
export const MEMINFO = `MemTotal:        8000000 kB
MemFree:          500000 kB
MemAvailable:    2000000 kB
Buffers:          100000 kB
`;

export const STAT = `cpu  100 10 50 800 40 5 15 20 7 3
cpu0 50 5 25 400 20 3 7 10 4 2
cpu1 50 5 25 400 20 2 8 10 3 1
intr 439659 0 0 0
ctxt 1040529
btime 1795216193
processes 5648
`;

export const SNMP = `Ip: Forwarding DefaultTTL InReceives
Ip: 2 64 7404
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors
Tcp: 1 200 120000 -1 67 2 3 4 5 7328 4585 6 0 112 0
Udp: InDatagrams NoPorts
Udp: 75 0
`;

export const NET_DEV = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
  eth0: 270216559    7381    1    2    0     0          0         0   529864    4645    3    4    0     0       0          0
ens192.100:1000 10 0 0 0 0 0 0 2000 20 0 0 0 0 0 0
`;

export const ROUTES = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	100	00000000	0	0	0
wlan0	00000000	0101A8C0	0003	0	0	600	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	100	00FFFFFF	0	0	0
eth0	0000000A	00000000	0201	0	0	0	000000FF	0	0	0
`;

export const ROUTES6 = `fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
`;

export const PROCESS_STATUS = `Name:	node
VmRSS:	   64000 kB
voluntary_ctxt_switches:	120
nonvoluntary_ctxt_switches:	30
`;

export const PROCESS_IO = `rchar: 7674
wchar: 698
read_bytes: 4096
write_bytes: 8192
cancelled_write_bytes: 0
`;

/** A command with blanks and parentheses in its name, 300 user and 200 system ticks. */
export const PROCESS_STAT = "4242 (a b) c) S 1 1 1 0 -1 4194304 122 0 0 0 300 200 0 0 20 0 11 0 82975 3133440 387\n";
