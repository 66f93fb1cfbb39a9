/** Returns the registry's name of a repository reference, with or without the registry's host; names are lower case. */
export function repositoryName(named: string, registryHost: string): string {
  const name = named.toLowerCase();
  const host = `${registryHost.toLowerCase()}/`;
  return name.startsWith(host) ? name.slice(host.length) : name;
}

/** Returns the image references of an `exec` section in any form that a node accepts. */
function imagesOf(section: unknown): readonly string[] {
  const commands = membersOf(section)["commands"];
  if (!Array.isArray(commands)) return [];
  return commands
    .map((item: unknown) => membersOf(membersOf(item)["image"])["repository"])
    .filter((named) => typeof named === "string");
}

/**
 * Returns the repositories of this registry that an `exec` section uses: references with its host, or in the organization's namespace.
 * Pure.
 */
export function ownRepositoriesOf(section: unknown, registryHost: string, namespace: string): readonly string[] {
  const prefixes = [registryHost, namespace].map((prefix) => `${prefix.toLowerCase()}/`);
  return imagesOf(section)
    .filter((named) => prefixes.some((prefix) => named.toLowerCase().startsWith(prefix)))
    .map((named) => repositoryName(named, registryHost));
}

/** Reports whether a container of an `exec` section uses this repository. Pure. */
export function usesRepository(section: unknown, repository: string, registryHost: string): boolean {
  return imagesOf(section).some((named) => repositoryName(named, registryHost) === repository);
}

/** Reports whether an `exec` section has an encrypted volume of this name. Pure. */
export function hasEncryptedVolume(section: unknown, name: string): boolean {
  const volumes = membersOf(section)["volumes"];
  if (!Array.isArray(volumes)) return false;
  return volumes.some((item: unknown) => membersOf(item)["name"] === name && membersOf(item)["encrypted"] === true);
}

function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
