import { z } from "zod";
import type { Engine, ImageDetail } from "./engine.ts";
import { inPath, parsed } from "./parse.ts";
import { pull } from "./pull.ts";
import type { Transport } from "./transport.ts";

type Images = Pick<Engine, "pull" | "inspectImage" | "listImages" | "removeImage">;

const Image = z.object({
  Id: z.string(),
  RepoDigests: z.array(z.string()).nullish(),
  RepoTags: z.array(z.string()).nullish(),
  Size: z.number().default(0),
  Os: z.string().default(""),
  Architecture: z.string().default(""),
});
const ImageRow = Image.extend({ Created: z.number().default(0) });

/** The Engine API's image calls. */
export function images(transport: Transport): Images {
  return {
    pull: (reference, options, signal) => pull(transport, reference, options, signal),
    async inspectImage(reference, signal) {
      const what = `cannot inspect image ${reference}`;
      const call = { what, method: "GET", path: `/images/${inPath(reference)}/json`, accepts: [404] } as const;
      const { status, body } = await transport.send(call, signal);
      return status === 404 ? undefined : detail(parsed(Image, body, "what the engine knows of an image"));
    },
    async listImages(signal) {
      const { body } = await transport.send(
        { what: "cannot list images", method: "GET", path: "/images/json" },
        signal,
      );
      const rows = parsed(z.array(ImageRow), body, "the engine's list of images");
      return rows.map((row) => Object.assign(detail(row), { createdAt: row.Created }));
    },
    async removeImage(reference, signal) {
      const what = `cannot remove image ${reference}`;
      const path = `/images/${inPath(reference)}`;
      await transport.send({ what, method: "DELETE", path, accepts: [404], deadlineMs: 60_000 }, signal);
    },
  };
}

/** An image without a name is listed as `<none>`. */
function detail(image: z.infer<typeof Image>): ImageDetail {
  const named = (names: readonly string[] | null | undefined): readonly string[] =>
    (names ?? []).filter((name) => !name.startsWith("<none>"));
  const { Os: os, Architecture: architecture } = image;
  return {
    id: image.Id,
    digests: named(image.RepoDigests),
    tags: named(image.RepoTags),
    sizeBytes: image.Size,
    ...(os === "" || architecture === "" ? {} : { platform: `${os}/${architecture}` }),
  };
}
