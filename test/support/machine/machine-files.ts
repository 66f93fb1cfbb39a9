import type { ApplianceMachine } from "../upgrades/appliance-machine.ts";

/** The files of a machine: a line for each, with its kind, mode, owner and content, and the users and packages. */
export type MachineFiles = readonly string[];

/** Files that change all the time: the journal, the state of dpkg and systemd, backup copies of /etc files. */
const LIVELY = String.raw`^(/proc|/sys|/dev|/run/(udev|log|systemd|credentials)|/var/log|/var/cache|/var/lib/(apt|dpkg|systemd)|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-|/etc/\.pwd\.lock|/root|/tmp|/var/tmp)(/|$)`;
const READ = [
  `find / /run -xdev -regextype posix-extended -regex '${LIVELY}' -prune -o -printf '%y %m %U:%G %p %l\\n'`,
  `find / -xdev -regextype posix-extended -regex '${LIVELY}' -prune -o -type f -exec cksum {} +`,
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

/** Returns the lines that only one of both has. */
export function changedFiles(before: MachineFiles, after: MachineFiles): readonly string[] {
  const [then, now] = [new Set(before), new Set(after)];
  return [
    ...before.filter((line) => !now.has(line)).map((line) => `- ${line}`),
    ...after.filter((line) => !then.has(line)).map((line) => `+ ${line}`),
  ];
}
