import { normalize } from "node:path";
import { HostError } from "../../../errors.ts";
import type { ContainerSpec, Mount } from "../../../protocol/sections/exec/config.ts";

/** Privileges that the machine's owner grants to containers: `containers` in agent.json. */
export interface ContainerPolicy {
  readonly allowPrivileged: boolean;
  /** Absolute paths; each entry includes its subtree. A bind needs an entry. */
  readonly allowBinds: readonly string[];
  /** Names without `CAP_`, in addition to those that act within a container. */
  readonly allowCapabilities: readonly string[];
}

/** Paths that no bind may expose; they need not exist. */
export interface ProtectedPaths {
  /** Holdfast's own directories: state, run, overlay, data store, settings. No setting allows them. */
  readonly own: readonly string[];
  /** Sockets of container engines and of other services that manage the machine. */
  readonly sockets: readonly string[];
  /** Directories in which engines keep images and containers. */
  readonly engineDirectories: readonly string[];
}

export type BindVerdict =
  | { readonly verdict: "allowed" }
  | { readonly verdict: "refused"; readonly reason: string }
  /** The source does not exist yet. */
  | { readonly verdict: "missing"; readonly reason: string };

/** Capabilities that act within the container only; all others affect the machine. */
const CONTAINED: ReadonlySet<string> = new Set(
  (
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT " +
    "IPC_LOCK IPC_OWNER LEASE NET_ADMIN NET_BROADCAST SYS_NICE SYS_PTRACE SYS_RESOURCE"
  ).split(" "),
);
const KERNEL = ["/proc", "/sys", "/dev"];
const SETTINGS = "of the node's agent.json";

/** Returns why local policy forbids a definition, or undefined. */
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
 * Checks the bind mounts of a definition by their real paths, with symbolic links resolved. `realpath` resolves to undefined if a path does
 * not exist; a path that it rejects with a {HostError} is not allowed. `others` are the bind sources of other containers.
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
    // Checked first: an error must not reveal whether a forbidden path exists.
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
    // A running container could replace the inner path by a link; the engine would follow it at the next start.
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
    if (error instanceof HostError) return { path: undefined, why: `cannot be read: ${error.message}` };
    throw error;
  }
}

interface Rule {
  readonly paths: readonly string[];
  /** True if the rule includes the subtree. */
  readonly isTree: boolean;
  readonly what: string;
}

/** Returns the path of a rule that a bind would expose: the path itself, a path inside it, or, for a tree, the tree that contains it. */
function touchedBy(path: string, rule: Rule): string | undefined {
  return rule.paths.find((guarded) => isWithin(guarded, path) || (rule.isTree && isWithin(path, guarded)));
}

function isWithin(path: string, root: string): boolean {
  return path === root || path.startsWith(root.endsWith("/") ? root : `${root}/`);
}

/** The real path, and the path as written. */
const placesOf = (source: string, { path }: { readonly path: string | undefined }): readonly string[] => [
  path ?? normalize(source),
  normalize(source),
];

/**
 * Returns the paths that need an entry each: the real path, and the path as written if it is below a kernel file system, since a link in
 * /proc resolves differently for each process.
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
