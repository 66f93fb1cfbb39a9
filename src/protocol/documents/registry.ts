import { z } from "zod";

/** A repository of images below its registry, `<namespace>/<path>` (OCI Distribution Specification, "Pulling manifests"). */
export const RepositoryName = z
  .string()
  .max(255)
  .regex(
    /^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$/,
    "must be parts of small letters and digits, divided by slashes",
  );

/** The tag of an image. */
export const ImageTag = z.string().regex(/^\w[\w.-]{0,127}$/, "must be letters, digits, '_', '.' and '-', at most 128");

/** The platform's own registry: where it answers, and how names of the organization's repositories begin. */
export const RegistryPlace = z.object({
  /** `host` or `host:port`, as it stands in an image reference. */
  host: z
    .string()
    .max(261)
    .regex(/^(?:[A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?$/, "must be host or host:port"),
  namespace: z.string().min(1).max(253),
});
export type RegistryPlace = z.infer<typeof RegistryPlace>;
