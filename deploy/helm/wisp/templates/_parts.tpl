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

{{/* What pull and follow are both told: which run, and whom to trust. */}}
{{- define "wisp.arguments" -}}
- {{ .Values.run | quote }}
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
{{- end }}

{{/* Where pull and follow put the weights, and under which name `wisp status` shows it. */}}
{{- define "wisp.folder" -}}
- --into
- {{ .Values.models.mountPath }}/{{ .Values.models.folder }}
- --id
- $(POD_NAME)
{{- end }}

{{/* How the pod's weights move: by `wisp follow` into a folder, by it telling the server, or by the server itself. */}}
{{- define "wisp.drive" -}}
{{- if eq .Values.mode "daemonset" }}folder{{ else }}{{ .Values.server.drive }}{{ end }}
{{- end }}

{{/* The note lies beside the weights, so what keeps them keeps it. */}}
{{- define "wisp.noteStep" -}}
echo "$WISP_STEP" >{{ .Values.models.mountPath }}/step.new && mv {{ .Values.models.mountPath }}/step.new {{ .Values.models.mountPath }}/step
{{- end }}

{{- define "wisp.pull" -}}
name: pull
{{ include "wisp.container" . }}
args:
  - pull
  {{- include "wisp.arguments" . | nindent 2 }}
  {{- include "wisp.folder" . | nindent 2 }}
  {{- if eq (include "wisp.drive" .) "folder" }}
  - --on-step
  - {{ include "wisp.noteStep" . | squote }}
  {{- end }}
{{- end }}

{{/* Ready from the minimum step on: what the folder holds, or what the driver saw an SGLang server serve. A vLLM server
     tells it itself. */}}
{{- define "wisp.follow" -}}
name: follow
{{ include "wisp.container" . }}
args:
  - follow
  {{- include "wisp.arguments" . | nindent 2 }}
  {{- if ne (include "wisp.drive" .) "folder" }}
  - --{{ .Values.server.drive }}
  - http://127.0.0.1:{{ .Values.server.port }}
  {{- else }}
  {{- include "wisp.folder" . | nindent 2 }}
  {{- if .Values.maxStaleness }}
  - --max-staleness
  - {{ .Values.maxStaleness | quote }}
  {{- end }}
  - --on-step
  - {{ printf "%s%s" (include "wisp.noteStep" .) (ternary "" (printf " && %s" .Values.server.onStep) (empty .Values.server.onStep)) | squote }}
  {{- end }}
  - --poll
  - {{ .Values.poll | quote }}
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
{{- if eq (include "wisp.drive" .) "folder" }}
readinessProbe:
  exec:
    command: [sh, -c, 'test "$(cat {{ .Values.models.mountPath }}/step)" -ge {{ .Values.minimumStep }}']
  periodSeconds: 5
{{- else if eq (include "wisp.drive" .) "sglang" }}
readinessProbe:
  exec:
    # The image has no HTTP client but bash.
    command:
      - bash
      - -c
      - |
        exec 3<>/dev/tcp/127.0.0.1/{{ .Values.metrics.port }} && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 &&
        awk '/^wisp_server_step[{]/ { step = $2; told = 1 }
             END { exit !(told && step >= {{ .Values.minimumStep }}) }' <&3
  periodSeconds: 5
{{- end }}
{{- end }}

{{/* What a vLLM server with the plugin is told, as `wisp follow` is; a driver that is stricter would be refused. */}}
{{- define "wisp.serverSettings" -}}
- {name: WISP_RUN, value: {{ .Values.run | quote }}}
- {name: WISP_MODE, value: {{ ternary "self" "push" (eq .Values.server.drive "self") }}}
- name: WISP_REPLICA_ID
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- if .Values.runId }}
- {name: WISP_RUN_ID, value: {{ .Values.runId | quote }}}
{{- end }}
{{- if .Values.trust.secret }}
- name: WISP_TRUST
  value: {{ range $i, $key := .Values.trust.keys }}{{ if $i }},{{ end }}/etc/wisp/trust/{{ $key }}{{ end }}
{{- end }}
{{- end }}

{{/* Ready when it serves the minimum step or a later one, which a vLLM server says itself. The key is that of vLLM. */}}
{{- define "wisp.servedStep" -}}
import json, os, urllib.request as web
key = os.environ.get("VLLM_API_KEY", "")
url = "http://127.0.0.1:{{ .Values.server.port }}/wisp/status"
asked = web.Request(url, headers={"Authorization": "Bearer " + key} if key else {})
with web.build_opener(web.ProxyHandler({})).open(asked, timeout=4) as answer:
    served = json.load(answer)["served"]
raise SystemExit(served is None or served < {{ .Values.minimumStep }})
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
