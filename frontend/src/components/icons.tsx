/** The few pictograms that the pages use, drawn on a 16-unit grid. Decorative unless titled. */
import type { ReactNode } from "react";

function Icon({ children, size = 16 }: { children: ReactNode; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.5"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      {children}
    </svg>
  );
}

/** Bellows: the mark of the product. */
export const BellowsIcon = ({ size = 20 }: { size?: number }) => (
  <svg width={size} height={size} viewBox="0 0 20 20" fill="none" aria-hidden="true">
    <path d="M2 4v12M18 4v12" stroke="currentColor" strokeWidth="2.2" strokeLinecap="round" />
    <path
      d="M5.2 5.5 7.6 14.5 10 5.5 12.4 14.5 14.8 5.5"
      stroke="var(--c-accent)"
      strokeWidth="1.7"
      strokeLinecap="round"
      strokeLinejoin="round"
    />
  </svg>
);

export const FleetIcon = () => (
  <Icon>
    <path d="M2.5 2.5h4v4h-4zM9.5 2.5h4v4h-4zM2.5 9.5h4v4h-4zM9.5 9.5h4v4h-4z" />
  </Icon>
);
export const JobsIcon = () => (
  <Icon>
    <path d="M2 4h12M2 8h12M2 12h7" />
  </Icon>
);
export const DecisionsIcon = () => (
  <Icon>
    <path d="M4 2v12M4 8h5a3 3 0 0 0 3-3V4M9.5 5.5 12 3l2.5 2.5" />
  </Icon>
);
export const SunIcon = () => (
  <Icon>
    <circle cx="8" cy="8" r="2.8" />
    <path d="M8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9" />
  </Icon>
);
export const MoonIcon = () => (
  <Icon>
    <path d="M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5a5.8 5.8 0 1 0 7.1 7.1z" />
  </Icon>
);
export const UserIcon = () => (
  <Icon>
    <circle cx="8" cy="5.2" r="2.7" />
    <path d="M2.8 14c.5-2.9 2.6-4.4 5.2-4.4s4.7 1.5 5.2 4.4" />
  </Icon>
);
export const SearchIcon = () => (
  <Icon size={14}>
    <circle cx="7" cy="7" r="4.5" />
    <path d="m10.5 10.5 3.5 3.5" />
  </Icon>
);
export const RetryIcon = () => (
  <Icon size={14}>
    <path d="M13.5 8a5.5 5.5 0 1 1-1.6-3.9M13.5 1.8v2.7h-2.7" />
  </Icon>
);
export const WarnIcon = () => (
  <Icon size={14}>
    <path d="M8 2 1.5 13.5h13zM8 6.5v3M8 11.6v.1" />
  </Icon>
);
export const UpIcon = () => (
  <Icon size={12}>
    <path d="M8 13V3M4 7l4-4 4 4" />
  </Icon>
);
export const DownIcon = () => (
  <Icon size={12}>
    <path d="M8 3v10M4 9l4 4 4-4" />
  </Icon>
);
export const BoltIcon = () => (
  <Icon size={14}>
    <path d="M9 1.5 3.5 9H8l-1 5.5L12.5 7H8z" />
  </Icon>
);
export const ExternalIcon = () => (
  <Icon size={12}>
    <path d="M6 3H3v10h10v-3M9 2.5h4.5V7M13.2 2.8 7.5 8.5" />
  </Icon>
);
export const BackIcon = () => (
  <Icon size={14}>
    <path d="M10 3 5 8l5 5" />
  </Icon>
);
