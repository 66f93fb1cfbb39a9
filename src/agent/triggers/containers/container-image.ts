import { HostError, InputError } from "../../../errors.ts";
import { ContainerImageRequest } from "../../../protocol/triggers/bodies.ts";
import type { Compute } from "../../containers/model/compute.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

export interface ContainerImageOptions {
  readonly compute: () => Pick<Compute, "images" | "removeImage"> | undefined;
  /** Registry of the platform; its images are named without it. */
  readonly registryHost: () => string | undefined;
  readonly audit: (what: string) => void;
}

/** Lists the engine's images, or deletes an unused one. A refused deletion is a result, not a failure. */
export function containerImage({
  compute,
  registryHost,
  audit,
}: ContainerImageOptions): OneShotTrigger<ContainerImageRequest> {
  return {
    event: "container-image",
    kind: "one-shot",
    request: ContainerImageRequest,
    deadlineMs: 60_000,
    // An INACTIVE node keeps its images.
    needsDataPlane: true,
    readOnly: false,
    isReadOnly: ({ action }) => action === "list",
    isRemedy: ({ action }) => action !== "list",
    agents: false,
    async handle(request, { signal, user }) {
      const there = compute();
      if (request.action === "list") {
        const images = (await there?.images(signal)) ?? [];
        return { images: images.flatMap(({ tags }) => tags.map((tag) => nameOf(tag, registryHost()))) };
      }
      const { image } = request;
      const end = image.lastIndexOf("/");
      const [repository, tag] = [image.slice(0, Math.max(end, 0)), image.slice(end + 1)];
      if (repository === "" || tag === "") return { error: `${image} is no repository and tag joined by a slash` };
      try {
        if (there === undefined) throw new InputError("not-found", `there is no image ${repository}:${tag}`);
        await there.removeImage(repository, tag, signal);
      } catch (error) {
        signal.throwIfAborted();
        const isAnswer = error instanceof InputError || (error instanceof HostError && error.code === "engine-refused");
        if (isAnswer) return { error: error.message };
        throw error;
      }
      audit(`${user} deleted image ${repository}:${tag}`);
      return { success: "Successful deletion" };
    },
  };
}

/** Returns repository and tag of a reference, as definitions name them. */
function nameOf(reference: string, host: string | undefined): { readonly name: string; readonly tag: string } {
  const isOurs = host !== undefined && reference.startsWith(`${host}/`);
  const short = isOurs ? reference.slice(host.length + 1) : reference;
  const end = short.lastIndexOf(":");
  return { name: short.slice(0, end), tag: short.slice(end + 1) };
}
