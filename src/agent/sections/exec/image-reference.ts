/** Where the node's own organization keeps its images. */
export interface Registry {
  /** With its port, where it has one. */
  readonly host: string;
  /** The organization's domain, which leads its repositories' names. */
  readonly namespace: string;
}

export interface ImageReference {
  /** As the engine takes it and as it lists it. */
  readonly reference: string;
  /** Whether it comes from the node's own registry, which wants a credential. */
  readonly isFromRegistry: boolean;
  /** Whether it is named by digest: one that is there is the right one. */
  readonly isPinned: boolean;
}

const HUB = new Set(["docker.io", "index.docker.io", "registry-1.docker.io"]);
const HOST =
  /^(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*(?::\d{1,5})?$/;
const COMPONENT = /^[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
const MAX_NAME = 255;

/**
 * The full reference of an image: what begins with the organization's namespace is in its registry, anything else is public.
 * The engine would take a namespace, which has dots, for the name of a registry; `docker.io` names get their short form.
 */
export function imageReference(
  image: { readonly repository: string; readonly tag: string },
  registry: Registry | undefined,
): ImageReference | { readonly refused: string } {
  const suffix = suffixOf(image.tag);
  if (suffix === undefined) return { refused: `image tag ${JSON.stringify(image.tag)} is neither a tag nor a digest` };
  const { host, path, isFromRegistry } = locate(image.repository, registry);
  const name = [...(host === undefined ? [] : [host]), ...path].join("/");
  const isValid =
    (host === undefined || HOST.test(host)) && path.length > 0 && path.every((part) => COMPONENT.test(part));
  if (!isValid || name.length > MAX_NAME) {
    return { refused: `image repository ${JSON.stringify(image.repository)} is not the name of a repository` };
  }
  return { reference: name + suffix, isFromRegistry, isPinned: suffix.startsWith("@") };
}

/** A digest may stand in the place of the tag, alone or behind one; then it alone decides. */
function suffixOf(tag: string): string | undefined {
  const at = tag.lastIndexOf("@");
  const digest = tag.slice(at + 1);
  if (DIGEST.test(digest) && (at <= 0 || TAG.test(tag.slice(0, at)))) return `@${digest}`;
  if (tag === "") return ":latest";
  return TAG.test(tag) ? `:${tag}` : undefined;
}

interface Located {
  readonly host: string | undefined;
  readonly path: readonly string[];
  readonly isFromRegistry: boolean;
}

function locate(repository: string, registry: Registry | undefined): Located {
  const parts = repository.split("/");
  const [first = "", second] = parts;
  if (registry !== undefined) {
    const { host } = registry;
    const namespace = registry.namespace.toLowerCase();
    const isHost = first.toLowerCase() === host.toLowerCase() && parts.length > 1;
    // Host and namespace may be the same domain: then the second element tells which one was meant.
    if (isHost && (second?.toLowerCase() === namespace || host.toLowerCase() !== namespace)) {
      return { host, path: parts.slice(1), isFromRegistry: true };
    }
    if (first.toLowerCase() === namespace) {
      return { host, path: [namespace, ...parts.slice(1)], isFromRegistry: true };
    }
  }
  if (parts.length > 1 && HUB.has(first.toLowerCase()))
    return { host: undefined, path: shortened(parts.slice(1)), isFromRegistry: false };
  if (parts.length > 1 && isRegistryHost(first)) return { host: first, path: parts.slice(1), isFromRegistry: false };
  return { host: undefined, path: shortened(parts), isFromRegistry: false };
}

/** The engine lists official images without their folder. */
const shortened = (path: readonly string[]): readonly string[] =>
  path.length === 2 && path[0] === "library" ? path.slice(1) : path;

/** How the engine tells a host from the first part of a path. */
const isRegistryHost = (first: string): boolean => /[.:]/.test(first) || first === "localhost";
