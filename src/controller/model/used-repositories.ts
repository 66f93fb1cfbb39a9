/** What a registry calls the repository that a reference names, with the registry's host or without; its names have small letters only. */
export function repositoryName(named: string, registryHost: string): string {
  const name = named.toLowerCase();
  const host = `${registryHost.toLowerCase()}/`;
  return name.startsWith(host) ? name.slice(host.length) : name;
}

/** The images of a section `exec`, in any form that a node reads, as they are named there. */
function imagesOf(section: unknown): readonly string[] {
  const commands = membersOf(section)["commands"];
  if (!Array.isArray(commands)) return [];
  return commands
    .map((item: unknown) => membersOf(membersOf(item)["image"])["repository"])
    .filter((named) => typeof named === "string");
}

/** The repositories of this registry whose images a section `exec` has: named with its host, or in the organization's namespace. Pure. */
export function ownRepositoriesOf(section: unknown, registryHost: string, namespace: string): readonly string[] {
  const prefixes = [registryHost, namespace].map((prefix) => `${prefix.toLowerCase()}/`);
  return imagesOf(section)
    .filter((named) => prefixes.some((prefix) => named.toLowerCase().startsWith(prefix)))
    .map((named) => repositoryName(named, registryHost));
}

/** Whether a section `exec` has a container with an image of this repository. Pure. */
export function usesRepository(section: unknown, repository: string, registryHost: string): boolean {
  return imagesOf(section).some((named) => repositoryName(named, registryHost) === repository);
}

/** Whether a section `exec` has an encrypted volume of this name. Pure. */
export function hasEncryptedVolume(section: unknown, name: string): boolean {
  const volumes = membersOf(section)["volumes"];
  if (!Array.isArray(volumes)) return false;
  return volumes.some((item: unknown) => membersOf(item)["name"] === name && membersOf(item)["encrypted"] === true);
}

function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
