import { normalize } from "node:path";
import { HostError } from "../../../errors.ts";
import type { ContainerSpec, Mount } from "../../../protocol/sections/exec/config.ts";

/** What the owner of the machine lets containers have beyond the ordinary: `containers` in agent.json. */
export interface ContainerPolicy {
  readonly allowPrivileged: boolean;
  /** Absolute paths; what is below one is allowed with it. No bind is allowed without an entry. */
  readonly allowBinds: readonly string[];
  /** Names without `CAP_`, in addition to those that stay within a container. */
  readonly allowCapabilities: readonly string[];
}

/** What no bind may show; none of it needs to exist. */
export interface ProtectedPaths {
  /** Holdfast's own directories: state, run, overlay, data store, settings. Never allowed. */
  readonly own: readonly string[];
  /** Sockets of container engines, and of others through which the machine is managed. */
  readonly sockets: readonly string[];
  /** Where engines keep images and containers. */
  readonly engineDirectories: readonly string[];
}

export type BindVerdict =
  | { readonly verdict: "allowed" }
  | { readonly verdict: "refused"; readonly reason: string }
  /** Nothing is there, for now. */
  | { readonly verdict: "missing"; readonly reason: string };

/** Capabilities that act on what belongs to the container alone; all others reach the machine. */
const CONTAINED: ReadonlySet<string> = new Set(
  (
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT " +
    "IPC_LOCK IPC_OWNER LEASE NET_ADMIN NET_BROADCAST SYS_NICE SYS_PTRACE SYS_RESOURCE"
  ).split(" "),
);
const KERNEL = ["/proc", "/sys", "/dev"];
const SETTINGS = "of the node's agent.json";

/** Why local policy forbids what a definition asks for; undefined when it does not. */
export function checkPrivileges(
  spec: Pick<ContainerSpec, "privileged" | "capabilities">,
  policy: ContainerPolicy,
): string | undefined {
  if (policy.allowPrivileged) return undefined;
  if (spec.privileged) {
    return `privileged: forbidden by local policy; \`containers.allowPrivileged\` ${SETTINGS} would allow it`;
  }
  const allowed = new Set(policy.allowCapabilities.map(plainCapability));
  const beyond = spec.capabilities.add.filter((name) => !CONTAINED.has(name) && !allowed.has(name));
  if (beyond.length === 0) return undefined;
  return `capabilities.addCaps: ${beyond.join(", ")} forbidden by local policy; \`containers.allowCapabilities\` ${SETTINGS} would allow it`;
}

const plainCapability = (name: string): string => name.toUpperCase().replace(/^CAP_/, "");

/**
 * Decides on the bind mounts of a definition by where their sources really are, symbolic links followed.
 * `realpath` says undefined when there is nothing at a path; what it cannot tell, by a {HostError}, is not allowed.
 * `others` are the sources of binds that other containers have.
 */
export async function checkBinds(
  mounts: readonly Pick<Mount, "kind" | "source">[],
  policy: ContainerPolicy,
  paths: ProtectedPaths,
  realpath: (path: string) => Promise<string | undefined>,
  others: readonly string[] = [],
): Promise<BindVerdict> {
  const binds = mounts.filter(({ kind }) => kind === "bind");
  if (binds.length === 0) return { verdict: "allowed" };
  const both = async (list: readonly string[]): Promise<readonly string[]> =>
    (await Promise.all(list.map(async (path) => [path, (await realpath(path)) ?? path]))).flat();
  const own = await both(paths.own);
  const allowed = await both(policy.allowBinds);
  const rules: readonly Rule[] = [
    {
      paths: await both(paths.sockets),
      isTree: false,
      what: "the socket of a container engine or of the service manager",
    },
    { paths: await both(paths.engineDirectories), isTree: true, what: "a directory of the container engine" },
    { paths: KERNEL, isTree: true, what: "a file system of the kernel" },
    { paths: ["/"], isTree: false, what: "the whole machine" },
  ];
  const place = async (source: string) => ({ source, where: await locate(source, realpath) });
  const located = await Promise.all(binds.map(({ source }) => place(source)));
  const around = [...located, ...(await Promise.all(others.map(place)))];
  for (const { source, where } of located) {
    // Refused first: whether a forbidden path exists is nobody's business.
    for (const path of new Set(placesOf(source, where))) {
      const touched = touchedBy(path, { paths: own, isTree: true, what: "" });
      if (touched !== undefined) {
        return refusal(source, path, `${touched} belongs to Holdfast itself, and no setting allows it`);
      }
    }
    for (const path of decisivePlacesOf(source, where)) {
      if (allowed.some((root) => isWithin(path, root))) continue;
      for (const rule of rules) {
        const hit = touchedBy(path, rule);
        if (hit === undefined) continue;
        return refusal(source, path, `${hit} is ${rule.what}; \`containers.allowBinds\` ${SETTINGS} would allow it`);
      }
      return refusal(source, path, `\`containers.allowBinds\` ${SETTINGS} has no entry for it; one would allow it`);
    }
    // What runs could put a link in the place of the inner one, and the engine would follow it the next time it starts the container.
    const outer = around.find((one) =>
      placesOf(source, where).some((path) => isBelow(path, placesOf(one.source, one.where))),
    );
    if (outer !== undefined && !policy.allowBinds.includes(source)) {
      const why = `it is in ${outer.source}, which a container can change; \`containers.allowBinds\` ${SETTINGS} with just this path would allow it`;
      return refusal(source, where.path ?? source, why);
    }
    if (where.path === undefined) return { verdict: "missing", reason: `mounts: bind source ${source} ${where.why}` };
  }
  return { verdict: "allowed" };
}

async function locate(
  source: string,
  realpath: (path: string) => Promise<string | undefined>,
): Promise<{ readonly path: string } | { readonly path: undefined; readonly why: string }> {
  try {
    const path = await realpath(source);
    return path === undefined ? { path, why: "does not exist" } : { path };
  } catch (error) {
    if (error instanceof HostError) return { path: undefined, why: `cannot be looked at: ${error.message}` };
    throw error;
  }
}

interface Rule {
  readonly paths: readonly string[];
  /** Whether what is below is meant as well. */
  readonly isTree: boolean;
  readonly what: string;
}

/** The path of a rule that a bind would show: it itself, what it contains, and, of a tree, what is in it. */
function touchedBy(path: string, rule: Rule): string | undefined {
  return rule.paths.find((guarded) => isWithin(guarded, path) || (rule.isTree && isWithin(path, guarded)));
}

function isWithin(path: string, root: string): boolean {
  return path === root || path.startsWith(root.endsWith("/") ? root : `${root}/`);
}

/** Where it is, and as it is written. */
const placesOf = (source: string, { path }: { readonly path: string | undefined }): readonly string[] => [
  path ?? normalize(source),
  normalize(source),
];

/**
 * The places that each need an entry: where it is, and as it is written below the kernel's file systems, since what a link of /proc
 * leads to depends on who follows it.
 */
function decisivePlacesOf(source: string, where: { readonly path: string | undefined }): readonly string[] {
  const [found = "", written = ""] = placesOf(source, where);
  return KERNEL.some((root) => isWithin(written, root)) ? [...new Set([written, found])] : [found];
}

const isBelow = (path: string, roots: readonly string[]): boolean =>
  !roots.includes(path) && roots.some((root) => isWithin(path, root));

function refusal(source: string, path: string, why: string): BindVerdict {
  const seen = path === source ? source : `${source} (which is ${path})`;
  return { verdict: "refused", reason: `mounts: bind of ${seen} is forbidden by local policy: ${why}` };
}
