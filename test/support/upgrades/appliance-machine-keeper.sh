#!/bin/sh
# Holds what one machine of test/support/upgrades/appliance-machine.ts consists of while it is off: its disk, and the network that its link leads to.
# Both lie in namespaces of this process. When standard input ends, since the test asks for it or has died, however, everything that runs
# on the machine or beside it ends, and nothing is left. Environment: MACHINE_ROOT, the layers of the file system it starts from; MACHINE_MARK.
set -u
trap '' INT TERM HUP PIPE

# systemd-nspawn keeps locks below /run, which machines of others would see.
mount -t tmpfs -o mode=755 run /run &&
  mkdir /run/machine &&
  mount -t tmpfs -o mode=755,size=4g machine /run/machine &&
  mkdir /run/machine/upper /run/machine/work /run/machine/root &&
  mount -t overlay -o "lowerdir=$MACHINE_ROOT,upperdir=/run/machine/upper,workdir=/run/machine/work" machine /run/machine/root || exit 1
ip -batch - <<'ip' || exit 1
link set lo up
link add name lan type bridge
address add 203.0.113.1/24 dev lan
link set lan up
ip

# Without control groups of its own, two machines would share those of their systemd.
groups() { find /sys/fs/cgroup -depth -type d -path "*/$MACHINE_MARK*" 2>/dev/null; }
for hierarchy in systemd unified memory; do
  [ ! -e "/sys/fs/cgroup/$hierarchy/cgroup.procs" ] || mkdir "/sys/fs/cgroup/$hierarchy/$MACHINE_MARK"
done
[ ! -e /sys/fs/cgroup/cgroup.procs ] || mkdir "/sys/fs/cgroup/$MACHINE_MARK"

echo ready
cat >/dev/null

processes() { groups | while read -r group; do cat "$group/cgroup.procs"; done 2>/dev/null | sort -u; }
for _ in $(seq 200); do
  left=$(processes)
  [ -n "$left" ] || break
  for pid in $left; do kill -9 "$pid"; done 2>/dev/null
  sleep 0.02
done
for _ in $(seq 50); do
  groups | while read -r group; do rmdir "$group"; done 2>/dev/null
  [ -n "$(groups)" ] || break
  sleep 0.02
done
