import type { ApplianceMachine } from "../upgrades/appliance-machine.ts";

/** What lies on a machine: a line for each file, with its kind, mode, owner and content, and the users and packages it knows. */
export type MachineFiles = readonly string[];

/** What the machine itself changes all the time: its journal, what dpkg and systemd remember, the copies that tools make of /etc files. */
const LIVELY = String.raw`^(/proc|/sys|/dev|/run/(udev|log|systemd|credentials)|/var/log|/var/cache|/var/lib/(apt|dpkg|systemd)|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-|/etc/\.pwd\.lock|/root|/tmp|/var/tmp)(/|$)`;
const READ = [
  `find / /run -xdev -regextype posix-extended -regex '${LIVELY}' -prune -o -printf '%y %m %U:%G %p %l\\n'`,
  `find / -xdev -regextype posix-extended -regex '${LIVELY}' -prune -o -type f -exec sha256sum {} +`,
  "systemctl list-unit-files --no-legend --no-pager",
  "systemctl list-units --all --no-legend --no-pager --plain 'holdfast*'",
  "find /run/systemd -path /run/systemd/units -prune -o -name '*holdfast*' -print",
  "ls /var/lib/systemd",
  "dpkg-query --show --showformat '${Package} ${Version} ${Status}\\n'",
  "nft list ruleset",
  "ip rule",
].join("; ");

export async function filesOf(machine: ApplianceMachine): Promise<MachineFiles> {
  return (await machine.sh(READ)).split("\n");
}

/** The lines that one has and the other has not. */
export function changedFiles(before: MachineFiles, after: MachineFiles): readonly string[] {
  const [then, now] = [new Set(before), new Set(after)];
  return [
    ...before.filter((line) => !now.has(line)).map((line) => `- ${line}`),
    ...after.filter((line) => !then.has(line)).map((line) => `+ ${line}`),
  ];
}
