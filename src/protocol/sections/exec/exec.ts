import { z } from "zod";
import type { JsonObject } from "../../values/values.ts";
import { says } from "../common/fields.ts";
import { EXEC_LIMITS, NodeLimits, partFields, recordFields, VolumeItem } from "./fields.ts";
import { ExecReader } from "./reader.ts";
import { ItemId } from "../common/section.ts";
import { list } from "../network/fields.ts";
import { execOf } from "./read.ts";

const object = says("must be an object");

/** The record of a container with every part of its extended configuration; unknown fields are kept. */
export const ContainerItem: z.ZodType<JsonObject> = z.looseObject(
  { id: ItemId.meta({ description: "Made by the client" }), ...recordFields, ...partFields },
  object,
);

/** The section `exec` of a node or a cluster, as strict as the API is; unknown fields are kept. */
export const ExecSection: z.ZodType<JsonObject> = z
  .looseObject(
    {
      commands: list(ContainerItem, EXEC_LIMITS.commands).meta({ description: "The containers" }),
      volumes: list(VolumeItem, EXEC_LIMITS.volumes),
      limits: NodeLimits.optional().meta({ description: "Caps for all containers together" }),
    },
    object,
  )
  .superRefine((section: JsonObject, context) => {
    const reader = new ExecReader();
    execOf(reader, section);
    for (const { path, message } of reader.conflicts) {
      const text = message.slice(path.length + ": ".length);
      context.addIssue({ code: "custom", path: path.split(".").slice(1), message: text });
    }
  });
