{{- define "wisp.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "wisp.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Image, environment and mounts that every container of wisp has. */}}
{{- define "wisp.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: XDG_CACHE_HOME
    value: /run/wisp/cache
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- range $name, $value := .Values.env }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
{{- if .Values.credentials.secret }}
envFrom:
  - secretRef: {name: {{ .Values.credentials.secret }}}
{{- end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: models, mountPath: {{ .Values.models.mountPath }}}
  - {name: state, mountPath: /run/wisp}
  {{- if .Values.trust.secret }}
  - {name: trust, mountPath: /etc/wisp/trust, readOnly: true}
  {{- end }}
{{- end }}

{{/* What pull and follow are both told: which run, whom to trust, and to note the step for the probe. */}}
{{- define "wisp.arguments" -}}
- {{ .Values.run | quote }}
- --into
- {{ .Values.models.mountPath }}/policy
{{- if .Values.runId }}
- --run
- {{ .Values.runId | quote }}
{{- end }}
{{- if .Values.trust.secret }}
{{- range .Values.trust.keys }}
- --trust
- /etc/wisp/trust/{{ . }}
{{- end }}
{{- end }}
- --id
- $(POD_NAME)
{{- end }}

{{- define "wisp.noteStep" -}}
echo "$WISP_STEP" >{{ .Values.models.mountPath }}/step.new && mv {{ .Values.models.mountPath }}/step.new {{ .Values.models.mountPath }}/step
{{- end }}

{{- define "wisp.pull" -}}
name: pull
{{ include "wisp.container" . }}
args:
  - pull
  {{- include "wisp.arguments" . | nindent 2 }}
  - --on-step
  - {{ include "wisp.noteStep" . | squote }}
{{- end }}

{{/* Ready from the minimum step on. The note lies beside the weights, so what keeps them keeps it. */}}
{{- define "wisp.follow" -}}
name: follow
{{ include "wisp.container" . }}
args:
  - follow
  {{- if .Values.server.drive | and (eq .Values.mode "sidecar") }}
  - {{ .Values.run | quote }}
  - --{{ .Values.server.drive }}
  - http://127.0.0.1:{{ .Values.server.port }}
  {{- if .Values.trust.secret }}
  {{- range .Values.trust.keys }}
  - --trust
  - /etc/wisp/trust/{{ . }}
  {{- end }}
  {{- end }}
  {{- else }}
  {{- include "wisp.arguments" . | nindent 2 }}
  - --on-step
  - {{ printf "%s%s" (include "wisp.noteStep" .) (ternary "" (printf " && %s" .Values.server.onStep) (empty .Values.server.onStep)) | squote }}
  {{- end }}
  - --poll
  - {{ .Values.poll | quote }}
  {{- if .Values.maxStaleness }}
  - --max-staleness
  - {{ .Values.maxStaleness | quote }}
  {{- end }}
  - --metrics
  - ":{{ .Values.metrics.port }}"
  {{- range .Values.extraArgs }}
  - {{ . | quote }}
  {{- end }}
ports:
  - {name: metrics, containerPort: {{ .Values.metrics.port }}}
livenessProbe:
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 30
  failureThreshold: 4
readinessProbe:
  exec:
    command: [sh, -c, 'test "$(cat {{ .Values.models.mountPath }}/step)" -ge {{ .Values.minimumStep }}']
  periodSeconds: 5
{{- end }}

{{- define "wisp.pod" -}}
automountServiceAccountToken: false
terminationGracePeriodSeconds: 120
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "wisp.stateVolumes" -}}
- name: state
  emptyDir: {}
{{- if .Values.trust.secret }}
- name: trust
  secret: {secretName: {{ .Values.trust.secret }}}
{{- end }}
{{- end }}
