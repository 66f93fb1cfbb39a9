import { z } from "zod";
import { InputError } from "../../../errors.ts";
import { ActivationCode } from "../../../protocol/channel/activation.ts";
import { Device } from "../../../protocol/documents/claims.ts";
import { peekClaims } from "../../../protocol/channel/jws.ts";
import { NodeName, NodeType, Uid } from "../../../protocol/values/values.ts";
import type { ShownMachine, Activations } from "./service.ts";
import { ORGANIZATION } from "../../access/policies/permissions.ts";
import { problemResponse, Violations } from "../../http/problem.ts";
import { route, type Call, type Route } from "../../http/route.ts";
import { badBody, notFound, Problem, refusals } from "../../http/shapes.ts";
import type { EventLog, EventParts } from "../../events/service.ts";
import type { Transact } from "../../store/transact.ts";
import type { Source } from "../../http/sources.ts";

const tag = "Activation";
// The node does not exist yet.
const access = {
  to: "resource",
  permissions: ["nodes::remote-activation"],
  resource: () => ORGANIZATION,
} as const;

const Machine = z
  .object({
    device: Device,
    key: z.string().meta({ description: "Thumbprint of its key, which the machine also shows" }),
    address: z.string().meta({ description: "Source address of its request" }),
    expiresInSeconds: z.int().min(0),
  })
  .meta({ id: "ShownMachine" });
const Activated = z.object({ uid: Uid, name: NodeName, type: NodeType, machine: Machine }).meta({ id: "Activated" });
const answers = {
  ...refusals,
  ...notFound,
  ...badBody,
  429: { description: "Too many wrong codes; `retry-after` is the number of seconds to wait", schema: Problem },
} as const;

export interface ActivationRouteDeps {
  readonly activations: Activations;
  readonly store: Transact<EventParts>;
  readonly events: Pick<EventLog, "change">;
  /** Called for each wrong activation code. */
  readonly onWrongCode?: (user: string, source: Source) => void;
}

/** Routes of activation codes, which machines without a license show. */
export function activationRoutes({ store, activations, events, onWrongCode }: ActivationRouteDeps): readonly Route[] {
  type Entry = Pick<Call<unknown, unknown, unknown>, "caller" | "source">;
  /** Counts an unknown code, and sets `retry-after` when a user has entered too many. */
  const withRateLimit = async (
    { caller, source }: Entry,
    work: (guesser: { user: string; source: typeof source }) => Promise<Response>,
  ) => {
    const guesser = { user: caller.name, source };
    try {
      return await work(guesser);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      if (error.code === "not-found") onWrongCode?.(caller.name, source);
      if (error.code !== "too-many-failures") throw error;
      return problemResponse(error, { "retry-after": String(activations.waitSeconds(guesser) ?? 1) });
    }
  };
  return [
    route({
      method: "POST",
      path: "/v2/activation/lookup",
      operationId: "lookUpActivation",
      summary: "Get the machine that shows an activation code",
      tag,
      access,
      body: { schema: z.strictObject({ code: ActivationCode }) },
      answers: { 200: { description: "The machine", schema: Machine }, ...answers },
      handle: (call) =>
        withRateLimit(call, async (guesser) => Response.json(activations.find(call.body.code, guesser))),
    }),
    route({
      method: "POST",
      path: "/v2/activation",
      operationId: "activate",
      summary: "Activate the machine that shows a code: it registers as a new node of this name",
      tag,
      access,
      body: {
        schema: z.strictObject({
          code: ActivationCode,
          name: NodeName,
          type: NodeType.default("Node"),
          key: z
            .string()
            .max(64)
            .optional()
            .meta({ description: "Expected thumbprint of the machine's key; a machine with another key is rejected" }),
        }),
      },
      answers: {
        200: { description: "Activated; the machine gets its license at its next poll", schema: Activated },
        ...answers,
      },
      handle: (call) =>
        withRateLimit(call, async (guesser) => {
          const { code, name, type, key } = call.body;
          if (key !== undefined && activations.find(code, guesser).key !== key) {
            throw new Violations([
              "key: the machine that shows this code has another key; check the code and the thumbprint on its console",
            ]);
          }
          const { license, ...machine } = await activations.approve(code, guesser, { name, type });
          const { jti: uid } = peekClaims("holdfast-license+jwt", license);
          const message = `Activation code accepted: ${describe(machine)} becomes ${name}`;
          await store.transact((tx) => events.change(tx, undefined, guesser.user, message));
          return Response.json({ uid, name, type, machine });
        }),
    }),
  ];
}

function describe({ device, key, address }: ShownMachine): string {
  return `${device.vendor} ${device.model} (${device.mac}) at ${address}, key ${key}`;
}
