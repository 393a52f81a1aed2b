import { CodedError, ManualClock } from "@kvasir/kit";
import { describe, expect, it } from "vitest";
import { EngineSupervisor, type LaunchedEngine, type LaunchEngine } from "../src/engine-supervisor.ts";
import type { GeneratorState } from "../src/generator.ts";
import { eventually } from "./support/http-client.ts";
import { scriptedEngines } from "./support/scripted-engine.ts";
import { heldBackend } from "./support/test-server.ts";

const never = new AbortController().signal;

interface Fixture {
  readonly clock: ManualClock;
  readonly supervisor: EngineSupervisor;
  readonly states: GeneratorState[];
  readonly launches: () => number;
  readonly crash: () => void;
  /** Fails the next launches. */
  failNext: number;
  /** Engines that have exited. */
  readonly exits: () => number;
}

function fixture(): Fixture {
  const clock = new ManualClock();
  const states: GeneratorState[] = [];
  let launches = 0;
  let exits = 0;
  const engines = scriptedEngines(() => {
    if (self.failNext > 0) {
      self.failNext--;
      throw new CodedError("engine_start_failed", "the script says no");
    }
    return heldBackend();
  });
  const launch: LaunchEngine = (onProgress): LaunchedEngine => {
    launches++;
    const engine = engines.launch(onProgress);
    void engine.exited.then(() => exits++);
    return engine;
  };
  const supervisor = new EngineSupervisor(launch, { clock, onState: (state) => states.push(state) });
  const self: Fixture = {
    clock,
    supervisor,
    states,
    launches: () => launches,
    crash: engines.crash,
    failNext: 0,
    exits: () => exits,
  };
  return self;
}

/** Moves the clock until the launch happens and tells how long that took. */
async function untilLaunch(self: Fixture, stepMs = 50): Promise<number> {
  const before = self.launches();
  let waitedMs = 0;
  await eventually(() => {
    if (self.launches() > before) return true;
    self.clock.advance(stepMs);
    waitedMs += stepMs;
    return self.launches() > before;
  });
  return waitedMs;
}

describe("the engine supervisor", () => {
  it("starts, serves, and ends without an orphan", async () => {
    const self = fixture();
    expect(self.supervisor.state).toBe("starting");
    expect(self.supervisor.refusal).toMatchObject({ code: "engine_starting" });
    await expect(self.supervisor.acquire(never)).rejects.toMatchObject({ code: "engine_starting" });
    const facts = await self.supervisor.start();
    expect(self.supervisor).toMatchObject({ state: "ready", facts, loadProgress: 1, refusal: null });
    expect(await self.supervisor.acquire(never)).toBe(self.supervisor.client);
    await self.supervisor.close(0);
    expect(self.exits()).toBe(1);
    await expect(self.supervisor.acquire(never)).rejects.toMatchObject({ code: "shutting_down" });
    expect(self.states).toEqual(["ready", "stopping"]);
    expect(self.clock.pendingTimers).toBe(0);
  });

  it("does not try again when the first start fails", async () => {
    const self = fixture();
    self.failNext = 1;
    await expect(self.supervisor.start()).rejects.toMatchObject({ code: "engine_start_failed" });
    expect(self.supervisor.state).toBe("failed");
    await expect(self.supervisor.acquire(never)).rejects.toMatchObject({ code: "engine_unavailable" });
    self.clock.advance(60_000);
    expect(self.launches()).toBe(1);
    await self.supervisor.close(0);
    expect(self.exits()).toBe(1);
  });

  it("comes back after growing pauses, up to ten seconds, and forgets failures once it is stable", async () => {
    const self = fixture();
    await self.supervisor.start();
    self.failNext = 7;
    self.crash();
    await eventually(() => self.exits() === 1);
    const pauses: number[] = [];
    for (let attempt = 0; attempt < 8; attempt++) {
      pauses.push(await untilLaunch(self));
      await eventually(() => self.exits() === attempt + 2 || self.supervisor.state === "ready");
    }
    expect(pauses).toEqual([250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
    expect(self.supervisor).toMatchObject({ state: "ready", restarts: 8 });

    self.crash();
    await eventually(() => self.exits() === 9);
    expect(await untilLaunch(self)).toBe(10_000);
    await eventually(() => self.supervisor.state === "ready");
    self.clock.advance(60_000);
    self.crash();
    await eventually(() => self.exits() === 10);
    expect(await untilLaunch(self)).toBe(250);
    await eventually(() => self.supervisor.state === "ready");
    await self.supervisor.close(0);
  });

  it("lets requests wait for a restart, ten seconds at most", async () => {
    const self = fixture();
    await self.supervisor.start();
    self.crash();
    await eventually(() => self.supervisor.state === "restarting");
    const waiting = self.supervisor.acquire(never);
    await untilLaunch(self);
    expect(await waiting).toBe(self.supervisor.client);

    self.failNext = 100;
    self.crash();
    await eventually(() => self.supervisor.state === "restarting");
    const inVain = self.supervisor.acquire(never);
    self.clock.advance(10_000);
    await expect(inVain).rejects.toMatchObject({ code: "engine_unavailable" });
    await self.supervisor.close(0);
  });

  it("lets a request that is aborted stop waiting", async () => {
    const self = fixture();
    await self.supervisor.start();
    self.crash();
    await eventually(() => self.supervisor.state === "restarting");
    const controller = new AbortController();
    const waiting = self.supervisor.acquire(controller.signal);
    controller.abort(new CodedError("shutting_down", "closing"));
    await expect(waiting).rejects.toMatchObject({ code: "shutting_down" });
    await self.supervisor.close(0);
  });

  it("can be closed while it starts and while it pauses", async () => {
    const starting = fixture();
    const [start] = await Promise.allSettled([starting.supervisor.start(), starting.supervisor.close(0)]);
    expect(start).toMatchObject({ status: "rejected", reason: { code: "engine_start_failed" } });
    expect(starting.exits()).toBe(1);
    expect(starting.supervisor.state).toBe("stopping");

    const pausing = fixture();
    await pausing.supervisor.start();
    pausing.crash();
    await eventually(() => pausing.exits() === 1);
    await pausing.supervisor.close(0);
    pausing.clock.advance(60_000);
    expect(pausing.launches()).toBe(1);
    expect(pausing.clock.pendingTimers).toBe(0);
  });

  it("kills a process that does not exit by itself", async () => {
    const clock = new ManualClock();
    const engines = scriptedEngines(() => heldBackend());
    let killed = false;
    let exit = (): void => {};
    const supervisor = new EngineSupervisor(
      (onProgress) => {
        const engine = engines.launch(onProgress);
        const exited = new Promise<void>((resolve) => {
          exit = resolve;
        });
        return {
          ...engine,
          exited,
          kill: () => {
            killed = true;
            exit();
          },
        };
      },
      { clock },
    );
    await supervisor.start();
    const closing = supervisor.close(0);
    await eventually(() => {
      clock.advance(100);
      return killed;
    });
    await closing;
  });
});
