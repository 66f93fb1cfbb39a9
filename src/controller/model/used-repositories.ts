/** What a registry calls the repository that a reference names, with the registry's host or without; its names have small letters only. */
export function repositoryName(named: string, registryHost: string): string {
  const name = named.toLowerCase();
  const host = `${registryHost.toLowerCase()}/`;
  return name.startsWith(host) ? name.slice(host.length) : name;
}

/** Whether a section `exec`, in any form that a node reads, has a container with an image of this repository. Pure. */
export function usesRepository(section: unknown, repository: string, registryHost: string): boolean {
  const commands = membersOf(section)["commands"];
  if (!Array.isArray(commands)) return false;
  return commands.some((item: unknown) => {
    const named = membersOf(membersOf(item)["image"])["repository"];
    return typeof named === "string" && repositoryName(named, registryHost) === repository;
  });
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
