import { words } from "./format.ts";
import css from "./tags.module.css";

type Tone = "calm" | "busy" | "good" | "warn" | "bad" | "off";

const phaseTones: Record<string, Tone> = {
  pending: "warn",
  starting: "busy",
  running: "good",
  resizing: "busy",
  degraded: "warn",
  suspended: "off",
  succeeded: "calm",
  failed: "bad",
  deleted: "off",
  terminating: "busy",
};

const commandTones: Record<string, Tone> = {
  pending: "busy",
  applying: "busy",
  applied: "busy",
  done: "good",
  failed: "bad",
  timed_out: "bad",
  superseded: "off",
  refused: "warn",
};

const commandMeaning: Record<string, string> = {
  pending: "Recorded, not begun.",
  applying: "A worker is writing it to the cluster.",
  applied: "Written; waits until the cluster and the trainer show it.",
  done: "The cluster shows it and the trainer confirms it.",
  failed: "The cluster refused it.",
  timed_out: "Written, but never confirmed in time.",
  superseded: "A newer plan wanted something else.",
  refused: "No longer valid on a newer snapshot, or its epoch was over.",
};

const noticeTones: Record<string, Tone> = {
  hangs_terminating: "bad",
  repeat_offender: "warn",
  node_departs: "busy",
  flapped: "calm",
};

function Tag({ tone, text, title }: { tone: Tone; text: string; title?: string }) {
  return (
    <span className={css.tag} data-tone={tone} title={title}>
      <span className={css.glyph} aria-hidden="true" />
      {text}
    </span>
  );
}

/** Where a job or a replica is. The glyph's shape says as much as its colour. */
export function PhaseTag({ phase }: { phase: string }) {
  return <Tag tone={phaseTones[phase] ?? "calm"} text={words(phase)} />;
}

interface CommandTagProps {
  state: string;
  /** A suspension is named: it stops a job instead of changing its size. */
  kind?: string;
}

/** How far a command has come. */
export function CommandTag({ state, kind }: CommandTagProps) {
  const text = kind === "suspend" ? `suspend: ${words(state)}` : words(state);
  return <Tag tone={commandTones[state] ?? "calm"} text={text} title={commandMeaning[state]} />;
}

/** What kind of notice it is. */
export function NoticeTag({ code }: { code: string }) {
  return <Tag tone={noticeTones[code] ?? "warn"} text={words(code)} />;
}
