/** The image registry of the node's organization. */
export interface Registry {
  /** Host, with its port if it has one. */
  readonly host: string;
  /** Domain of the organization, the first element of its repository names. */
  readonly namespace: string;
}

export interface ImageReference {
  /** Reference in the engine's form. */
  readonly reference: string;
  /** True for an image of the organization's registry, which requires a credential. */
  readonly isFromRegistry: boolean;
  /** True if pinned by digest: a local copy is always current. */
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
 * Returns the full reference of an image: a repository in the organization's namespace is in its registry, any other is public. Adds the
 * registry since the engine would take a namespace with dots for a registry. `docker.io` names are shortened.
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

/** Returns the suffix of the reference; a digest in or after the tag takes precedence. */
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
    // Host and namespace may be the same domain; the second element then tells which one is meant.
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

/** The engine lists official images without `library/`. */
const shortened = (path: readonly string[]): readonly string[] =>
  path.length === 2 && path[0] === "library" ? path.slice(1) : path;

/** Tells a registry host from the first element of a path, as the engine does. */
const isRegistryHost = (first: string): boolean => /[.:]/.test(first) || first === "localhost";
