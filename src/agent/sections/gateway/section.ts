import type { Overlay } from "../../../host/overlay/client.ts";
import { normaliseGateway, type Gateway } from "../../../protocol/sections/gateway/gateway.ts";
import type { NodeType } from "../../../protocol/values/values.ts";
import type { Section } from "../../reconcile/section.ts";
import { meshCompiler, type MeshSurroundings } from "./mesh.ts";
import { describeGatewayStep } from "./describe.ts";
import { planGateway, type GatewayActual, type GatewayStep, waitingGateway } from "./plan.ts";

export interface GatewayOptions {
  readonly overlay: Pick<Overlay, "observe" | "change">;
  readonly nodeType: () => NodeType;
  /** Returns the inputs other than the section: of the documents and the machine. */
  readonly surroundings: () => MeshSurroundings;
}

/** `gateway`: paths to other nodes, and this node's own gateway. */
export function gatewaySection(options: GatewayOptions): Section<Gateway, GatewayActual, GatewayStep> {
  const { overlay, nodeType, surroundings } = options;
  const compile = meshCompiler();
  const applyAll = (steps: readonly GatewayStep[], signal: AbortSignal): Promise<void> =>
    overlay.change({ mesh: steps.at(-1)?.mesh }, signal);
  return {
    name: "gateway",
    needsDataPlane: true,
    parse(raw) {
      const { gateway, rejected, notices } = normaliseGateway(raw, { nodeType: nodeType() });
      // If the section itself is unusable, the applied configuration stays.
      const isUnusable = rejected.some(({ path }) => path === "gateway");
      return { desired: gateway, rejected, notices, isUnusable };
    },
    async observe(signal) {
      const { mesh, standing } = await overlay.observe(signal);
      return { mesh, standing, ...surroundings() };
    },
    plan: (desired, actual) => planGateway(desired, actual, compile),
    // Changes of peers, grants and addresses come from documents and the machine, not from tampering with the table.
    asSurrounded: (actual, { isActive, self, domain, local, hasIpv6, literals }) => ({
      ...actual,
      isActive,
      self,
      domain,
      local,
      hasIpv6,
      literals,
    }),
    describe: describeGatewayStep,
    undo: () => undefined,
    apply: (step, signal) => applyAll([step], signal),
    applyAll,
    waits: waitingGateway,
    report: ({ mesh, standing }) => ({
      peers: mesh?.peers.length ?? 0,
      paths: mesh?.paths.length ?? 0,
      grants: mesh?.grants.length ?? 0,
      server: mesh?.server === undefined ? "off" : (standing?.server.state ?? "unknown"),
      // The UDP carrier is not implemented, even if the section enables it.
      "gateway.udp.enabled": false,
    }),
  };
}
