/** Whether a section `exec`, in any form that a node reads, has a container with an image of this repository. Pure. */
export function usesRepository(section: unknown, repository: string, registryHost: string): boolean {
  const commands = membersOf(section)["commands"];
  if (!Array.isArray(commands)) return false;
  return commands.some((item: unknown) => {
    const named = membersOf(membersOf(item)["image"])["repository"];
    return named === repository || named === `${registryHost}/${repository}`;
  });
}

function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}
