import type { RegistryPlace } from "../../../protocol/documents/registry.ts";
import type { Blueprint } from "../model/wanted.ts";

/** Describes the registry that a pull asks, and why it is asked without a credential if it is. Pure. */
export function registryAsked(
  image: Pick<Blueprint["image"], "reference" | "isFromRegistry">,
  registry: RegistryPlace | undefined,
  credential: { readonly given: string | undefined; readonly isUsed: boolean },
): string {
  const { host, path } = hostOf(image.reference);
  const asked = host ?? "the engine's default registry (docker.io)";
  if (credential.isUsed) return `asked ${asked} with the node's credential`;
  const lead = `asked ${asked} without a credential`;
  if (registry === undefined) return `${lead}: the control plane names no registry of this organization`;
  if (image.isFromRegistry) {
    return credential.given === undefined
      ? `${lead}: the control plane gave none`
      : `${lead}: the one that the control plane gave is for ${credential.given}`;
  }
  const why = `${lead}: it is not the organization's registry ${registry.host}`;
  const namespace = registry.namespace.toLowerCase();
  if (path[0]?.toLowerCase() === namespace && host !== undefined) {
    return `${why}; if the image is there, write its repository without a registry, as ${path.join("/")}`;
  }
  return `${why}; if the image is there, write its repository as ${namespace}/...`;
}

function hostOf(reference: string): { readonly host: string | undefined; readonly path: readonly string[] } {
  const [first = "", ...rest] = reference.replace(/@.*$|:[^:/]*$/u, "").split("/");
  const isHost = rest.length > 0 && (/[.:]/u.test(first) || first === "localhost");
  return isHost ? { host: first, path: rest } : { host: undefined, path: [first, ...rest] };
}
