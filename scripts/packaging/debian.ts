import { createHash } from "node:crypto";
import type { Architecture } from "../../src/protocol/documents/release.ts";
import { arOf, contentSize, tarOf, type Entry } from "./archives.ts";
import type { Installed } from "./layout.ts";

/** Libraries of the runtime, the tools that every node drives, and those that unpack an upgrade. */
const DEPENDS = [
  "libc6 (>= 2.28)",
  "libstdc++6 (>= 8)",
  "libgcc-s1",
  "libatomic1",
  "systemd (>= 247)",
  "iproute2",
  "nftables",
  "passwd",
  "xz-utils",
];
/** Without these a trigger or a feature says that it is missing. */
const RECOMMENDS = [
  "ca-certificates",
  "iputils-ping",
  "conntrack",
  "tcpdump",
  "mtr-tiny | mtr",
  "traceroute",
  "arping",
  "ethtool",
];
const SUGGESTS = [
  "docker.io | docker-ce | podman",
  "cryptsetup-bin",
  "wireguard-go",
  "unattended-upgrades",
  "netcat-openbsd",
];

/** `control` of the package. */
export function controlText(version: string, architecture: Architecture, entries: readonly Entry[]): string {
  return `${[
    "Package: holdfast",
    `Version: ${version}`,
    `Architecture: ${architecture}`,
    "Maintainer: Holdfast <packages@holdfast.invalid>",
    `Installed-Size: ${Math.ceil(contentSize(entries) / 1024)}`,
    `Depends: ${DEPENDS.join(", ")}`,
    `Recommends: ${RECOMMENDS.join(", ")}`,
    `Suggests: ${SUGGESTS.join(", ")}`,
    "Section: net",
    "Priority: optional",
    "Description: node of an overlay network",
    " The agent, the overlay and the command of a Holdfast node, and a control",
    " plane for small fleets, with the runtime they need.",
  ].join("\n")}\n`;
}

/** `md5sums` of the package, by which dpkg tells what somebody changed. */
export function md5sumsOf(entries: readonly Entry[]): string {
  return entries
    .flatMap((entry) =>
      "data" in entry ? [`${createHash("md5").update(entry.data).digest("hex")}  ${entry.path}\n`] : [],
    )
    .sort((a, b) => (a.slice(34) < b.slice(34) ? -1 : 1))
    .join("");
}

/** Fills a maintainer script in: `@ENABLED@` and so on become words of a shell. */
export function filledScript(template: string, { enabled, started, units, users, groups }: Installed): string {
  const words: Readonly<Record<string, readonly string[]>> = {
    ENABLED: enabled,
    STARTED: started,
    UNITS: units,
    USERS: users,
    GROUPS: groups,
  };
  return template.replaceAll(/@([A-Z]+)@/g, (_, name: string) => {
    const list = words[name];
    if (list === undefined) throw new Error(`a maintainer script asks for the unknown @${name}@`);
    for (const word of list) if (!/^[A-Za-z0-9._-]+$/.test(word)) throw new Error(`${word} is no plain name`);
    return list.join(" ");
  });
}

/** The control archive, not compressed. */
export function controlArchive(
  version: string,
  architecture: Architecture,
  entries: readonly Entry[],
  scripts: ReadonlyMap<string, Buffer>,
  time: number,
): Buffer {
  const files: Entry[] = [
    { path: "control", mode: 0o644, data: Buffer.from(controlText(version, architecture, entries)) },
    { path: "md5sums", mode: 0o644, data: Buffer.from(md5sumsOf(entries)) },
    ...[...scripts].map(([path, data]): Entry => ({ path, mode: 0o755, data })),
  ];
  return tarOf(files, "./", time);
}

/** A Debian package of its two archives (deb(5)); the suffix of their names stands for their compression. */
export function debOf(
  { control, data, suffix }: { readonly control: Buffer; readonly data: Buffer; readonly suffix: ".tar" | ".tar.xz" },
  time: number,
): Buffer {
  const members = [
    { name: "debian-binary", data: Buffer.from("2.0\n") },
    { name: `control${suffix}`, data: control },
    { name: `data${suffix}`, data },
  ];
  return arOf(members, time);
}
