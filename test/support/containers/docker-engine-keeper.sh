#!/bin/sh
# Holds the mount (and network) namespace of one test engine, and takes everything of it away when standard input ends: that is when
# the test asks for it, or when the test has died, however. Environment: ENGINE_DIR, ENGINE_CGROUP.
set -u
trap '' INT TERM HUP PIPE
# containerd keeps the sockets of its shims in /run/containerd, whatever it is told.
mount -t tmpfs -o mode=755 engine-run /run || exit 1
ip link set lo up 2>/dev/null
echo ready
cat >/dev/null

# What runs for this engine names its exec root: dockerd, containerd, and a shim for each container.
programs() { echo "$ENGINE_DIR/x/" | grep -lF -f - /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3; }
# Containers that were made with another parent group have groups named for them.
names() { echo "/$ENGINE_CGROUP"; ls "$ENGINE_DIR/d/containers" 2>/dev/null | sed 's|^|/|'; }
groups() { find /sys/fs/cgroup -depth -type d 2>/dev/null | grep -F -- "$(names)"; }
contained() { groups | while read -r group; do cat "$group/cgroup.procs"; done 2>/dev/null; }
end() { for pid in $1; do kill -9 "$pid"; done 2>/dev/null; }

for _ in $(seq 100); do
  end "$(programs)"
  end "$(contained)"
  [ -z "$(programs)$(contained)" ] && break
  sleep 0.05
done
groups | while read -r group; do rmdir "$group"; done 2>/dev/null
mounts() { cut -d' ' -f5 /proc/self/mountinfo | grep -F -- "$ENGINE_DIR/" | sort -r; }
mounts | while read -r path; do umount -l "$path"; done 2>/dev/null
# What is still mounted could lead to files of others.
[ -n "$(mounts)" ] || rm -rf --one-file-system -- "$ENGINE_DIR"
