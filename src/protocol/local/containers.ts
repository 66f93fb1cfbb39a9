import { z } from "zod";
import { Text64, Text128, Text253, Text256, Text1024, Text4096, UnixMilliseconds, Version } from "../values/values.ts";

const Name = Text253;
const Reason = Text4096;

/** State of the container engine, with the time of the change and the reason; `unused` if no container is configured. */
export const EngineState = z.object({
  state: z.enum(["unused", "unknown", "well", "unwell"]),
  since: UnixMilliseconds,
  reason: Reason.optional(),
});
export type EngineState = z.infer<typeof EngineState>;

/** A container of the applied configuration; times in Unix milliseconds. */
export const ContainerView = z.object({
  id: Name,
  name: Name,
  type: z.enum(["service", "recurring", "onDemand"]),
  enabled: z.boolean(),
  state: z.enum(["idle", "waiting", "pulling", "creating", "running", "stopping", "backoff"]),
  since: UnixMilliseconds,
  /** Reason of a state other than the configured one. */
  reason: Reason.optional(),
  stoppedByHand: z.boolean(),
  nextAttempt: UnixMilliseconds.optional(),
  nextRun: UnixMilliseconds.optional(),
  health: z.enum(["healthy", "unhealthy"]).optional(),
  restarts: Version,
  lastExitCode: z.int().optional(),
  image: z.object({ repository: Text1024, tag: Text256 }),
  imageId: Text128.optional(),
  engineId: Text128.optional(),
  address: Text64.optional(),
});
export type ContainerView = z.infer<typeof ContainerView>;

export const ContainersReport = z.object({
  schema: z.literal(1),
  engine: EngineState,
  containers: z.array(ContainerView).max(10_000),
});
export type ContainersReport = z.infer<typeof ContainersReport>;

/** A volume of the configuration, or one that was and is kept for a while. */
export const VolumeView = z.object({
  name: Name,
  state: z.enum(["ready", "missing", "unsupported", "quarantined", "failed"]),
  reason: Reason.optional(),
  encrypted: z.boolean(),
  path: Text4096.optional(),
  usedBy: z.array(Name).max(1000),
});
export type VolumeView = z.infer<typeof VolumeView>;

export const VolumesReport = z.object({ schema: z.literal(1), volumes: z.array(VolumeView).max(10_000) });
export type VolumesReport = z.infer<typeof VolumesReport>;

/** An image that the engine has, by the name that definitions give it. */
export const ImageView = z.object({ name: Text1024, tag: Text256 });
export type ImageView = z.infer<typeof ImageView>;
export const ImagesReport = z.object({ images: z.array(ImageView).max(100_000) });
export type ImagesReport = z.infer<typeof ImagesReport>;
