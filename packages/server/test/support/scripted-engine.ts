/** Engines in this process: the real engine over a scripted backend, behind the real client and an in-memory channel. */

import {
  type Backend,
  type ChildMessage,
  Engine,
  EngineClient,
  type EngineOptions,
  memoryChannelPair,
  type ParentMessage,
  serveEngine,
} from "@kvasir/engine";
import { systemClock } from "@kvasir/kit";
import type { LaunchedEngine, LaunchEngine } from "../../src/engine-supervisor.ts";

export const engineDefaults: EngineOptions = {
  maxConcurrency: 2,
  maxPendingRequests: 4,
  itlTargetMs: 250,
  prefillChunkTokens: 64,
  draftTokens: 0,
};

export interface ScriptedEngines {
  readonly launch: LaunchEngine;
  /** Backends in the order of their launches. */
  readonly backends: Backend[];
  /** Ends the running engine as a crash would. */
  crash(): void;
}

/** @param makeBackend called for every launch; what it throws makes the launch fail */
export function scriptedEngines(makeBackend: () => Backend, options: Partial<EngineOptions> = {}): ScriptedEngines {
  const backends: Backend[] = [];
  let kill = (): void => {};
  return {
    backends,
    crash: () => kill(),
    launch: (onProgress): LaunchedEngine => {
      const [parent, child] = memoryChannelPair<ParentMessage, ChildMessage>();
      const exited = serveEngine(child, async (_config, { publish, progress }) => {
        progress(0.5);
        const backend = makeBackend();
        backends.push(backend);
        return { engine: new Engine(backend, { ...engineDefaults, ...options }, systemClock, publish), facts: backend.facts };
      });
      kill = () => child.close();
      return { opened: EngineClient.open(parent, null, { onProgress }), exited, kill };
    },
  };
}
